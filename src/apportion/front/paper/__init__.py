"""The experiments of the GRD paper (Zhang et al., NeurIPS 2023), set beside what it prints."""
