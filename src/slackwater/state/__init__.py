"""What is known about the periods of a source: facts that never change, and what follows from them."""
