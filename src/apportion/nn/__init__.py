"""Mathematics on arrays that learn: networks, losses, masks over edges, Adam."""
