"""Erms: latency targets for each microservice."""
