"""Microservice applications: one module per published system."""
