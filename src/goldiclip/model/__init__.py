"""The nouns that compute: towers, pooling, decoder, and the container that joins them."""
