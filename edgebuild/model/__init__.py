"""Networks: model file to graph, plan, C sources, and their verification."""
