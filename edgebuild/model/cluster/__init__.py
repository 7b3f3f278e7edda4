"""One network on several devices: `terms` makes the plan, `cut` makes each device's graph, `together` runs them all
before any C is printed, `products` compiles each by the ordinary pipeline."""
