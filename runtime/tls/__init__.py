"""TLS of listeners and of clients: contexts, principals of certificates, reloading, and the layer above a transport."""
