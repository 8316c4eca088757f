"""The checker and the simulators of microservice applications."""
