"""Fair schedulers that the others are measured against: Themis, AlloX, Gandiva-fair, DRF, Shockwave."""
