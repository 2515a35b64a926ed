"""What everything speaks of: the data and the two contracts, facts about environments, settings, errors."""
