"""How a pipeline is: its state at one moment, its health, what is measured, and the doctor."""
