"""A trained model at work: embeddings and scores, heatmaps and masks, captions, answers and boxes."""
