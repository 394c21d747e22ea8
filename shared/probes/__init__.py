"""Measuring instruments: pure functions of models and tensors."""
