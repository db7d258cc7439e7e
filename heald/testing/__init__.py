"""Random models, problems and graphs, for tests and measurements, which import nothing from each other."""
