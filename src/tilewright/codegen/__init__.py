"""From functions in stage "vector" to text, objects and position-independent code images."""
