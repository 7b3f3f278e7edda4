"""One network on several devices: where each tensor lies, how each layer is split, and what that costs.

problem    the values that go in and come out: layers, devices, the medium
transfers  the transfers that bring a tensor from one form into another, and their cost on a medium
joint      the exact search over forms and methods, under the flash and RAM of each device
thesis     the methods of Stahl 2024, chapter 5, as baselines: fan-out only, both ILPs, pipelines
"""
