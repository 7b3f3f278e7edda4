"""One network on several devices: `terms` asks for a plan, `cut` makes each device's graph, `together` runs them all
before any C is printed, `products` sends each through the ordinary pipeline."""
