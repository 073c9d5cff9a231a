"""The source of pykka's own tests, and the plugin that runs them with the actors of this project."""
