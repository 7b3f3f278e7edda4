"""One network on several devices: the form of each tensor, the split of each layer, and their cost.

forms      layers, devices, the medium, forms of tensors, and the transfers between forms with their cost
joint      the exact search over forms and methods, under the flash and RAM of each device
by_name    plans by name of method; the methods of Stahl 2024, chapter 5, and pipelines as baselines
timeline   simulation of devices that compute, send and wait
"""
