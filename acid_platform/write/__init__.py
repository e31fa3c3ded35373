"""The write path: files in their final form, their records, and publishing them."""
