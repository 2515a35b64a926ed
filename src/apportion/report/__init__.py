"""The page about a run: one HTML file that reads run folders only, and needs nothing but a browser."""
