"""Zero-shot evaluation: retrieval, question retrieval, segmentation, classification; metrics, sets, and comparisons."""
