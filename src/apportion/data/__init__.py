"""Where episodes lie: the replay of a training, what a method remembers, logged episodes in files."""
