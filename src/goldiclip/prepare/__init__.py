"""From images with captions to every kind of supervision: join, phrases, boxes, questions, and their pipeline."""
