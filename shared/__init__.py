"""Models, probes and measurements behind the figures of the book."""
