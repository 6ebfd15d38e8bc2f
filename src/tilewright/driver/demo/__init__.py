"""The demo: a small convolutional network that reads handwritten digits, and its trained model."""
