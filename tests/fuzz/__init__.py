"""Random inputs for the whole compiler, each judged by somebody else: `./sconsw fuzz`.

recipe.py         a random network as a list of layers, from which layers can be taken away
tflite_writer.py  a recipe as an int8 TFLite file
onnx_writer.py    a recipe as a float ONNX file, or one that onnxruntime's quantiser made int8
machine.py        one compilation: plan, compiler, program, results
networks.py       a seed's network in all modes of tiling against TFLM or onnxruntime; failures made small
others.py         random drivers, damaged files, plans of least energy
wire.py           frames of clusters that a medium harms
"""
