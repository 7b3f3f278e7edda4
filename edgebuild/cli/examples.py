"""Examples of each command, which end its help; tests read each line as the command does."""

EXAMPLES = {
    "model": """
  edgebuild model kws.tflite --target stm32f411 -o build/kws
  edgebuild model kws.onnx --target nrf52840 --ram 8K --objective ram     row by row, in less memory
  edgebuild model kws.tflite --target stm32f767 --objective energy --qos 50
""",
    "export": """
  edgebuild export kws.tflite --as arduino --target samd21g18a -o libraries/kws
  edgebuild export kws.tflite --as zephyr --target nrf52840 --ram 16K -o modules/kws
  edgebuild export kws.tflite --as cubemx --target stm32f411 -o my_cube_project
  edgebuild export kws.tflite --as cmsis-pack --target stm32h743 --version 1.2.0 --vendor Acme -o packs
""",
    "driver": """
  edgebuild driver gpio.bf.c --name gpio --target stm32f411 -o build/gpio
  edgebuild driver uart.bf.c --name uart --target stm32f411 --layout fixed:STM32F411.svd --prove -o build/uart
""",
    "verify": """
  edgebuild verify kws.tflite --target mps2-an386                  equal to TFLite Micro? and what does it cost
  edgebuild verify kws.tflite --target mps2-an386 --layers --cycles
  edgebuild verify kws.tflite --target mps2-an386 --inputs x.npy --labels y.npy --min-accuracy 0.9
  edgebuild verify q.onnx --target mps2-an386 --reference float.onnx --data samples.npz --labels y.npy --json -
""",
    "distribute": """
  edgebuild distribute net.onnx --cluster cluster.yaml --name net -o build/net
  edgebuild distribute net.onnx --cluster cluster.yaml --name net --devices 2 --objective latency
""",
    "layout": """
  edgebuild layout buffers.csv -o offsets.csv
  edgebuild layout buffers.csv --capacity 64K
""",
    "clock": """
  edgebuild clock --target stm32f767 -o build/clocks
  edgebuild clock --target stm32f767 --explain 25,432,2
""",
    "calibrate": """
  edgebuild calibrate kws.tflite --target stm32f767 --pin PB0 -o build/profile
  edgebuild calibrate kws.tflite --target stm32f767 --fit measured.csv -o build
""",
    "inspect": """
  edgebuild inspect kws.tflite --target stm32f411 --tiling
  edgebuild inspect kws.tflite --target stm32f411 --picture memory.svg
  edgebuild inspect kws.onnx --stages
""",
    "group": """
  edgebuild group sense.yaml --target stm32f411 -o build/sense    an arena for all models of the file
  edgebuild group sense.yaml --target stm32f411 --json -          its report; nothing is written
""",
    "fit": """
  edgebuild fit kws.tflite                              all chips, the best three first
  edgebuild fit kws.tflite --smallest --qos 50          the smallest chip that runs it in 50 ms
  edgebuild fit kws.tflite --targets 'nrf5*,rp2*'       some chips, by pattern
  edgebuild fit kws.tflite --targets my_board.yaml      a board of your own
  edgebuild fit kws.tflite --json - | jq '.rows[0]'     for programs
""",
    "report": """
  edgebuild report kws.tflite --target stm32f411 -o report.html
  edgebuild report build/kws_report.json build/vww_report.json -o report.html
  edgebuild report new.tflite --target stm32f411 --compare build/kws_report.json -o report.html
  edgebuild report kws.tflite --target stm32f411 --trace trace.json     open it at ui.perfetto.dev
""",
    "diff": """
  edgebuild diff build/kws_report.json new/kws_report.json
  edgebuild diff old.tflite new.tflite --target stm32f411 --fail-if 'arena>+2%' --fail-if 'flash>+1K'
  edgebuild diff main/kws_report.json new.tflite --target stm32f411 --fail-if 'time>5000' --junit diff.xml

A limit names a figure: arena, flash, weights, code, macs, instructions, cycles, time (us) or energy (uJ). With a sign
the change is compared, as a number or in percent of the old figure; without one the new figure. Exit status 1: broken.
""",
    "explain": """
  edgebuild explain kws.tflite --kernels --target stm32f411
""",
    "map": """
  edgebuild map resnet8.tflite --target gap8
  edgebuild map layers.yaml --target gap8 --search dory --json -
""",
    "ops": """
  edgebuild ops
  edgebuild ops onnx
""",
    "targets": """
  edgebuild targets 'stm32f4*'
  edgebuild targets stm32f411
""",
    "tune": """
  edgebuild tune kws.tflite --target mps2-an386
  edgebuild tune --clear
""",
    "simulate": """
  edgebuild simulate corev app.elf
""",
    "quantize": """
  edgebuild quantize net.onnx --data samples.npz -o net_int8.onnx
  edgebuild quantize net.onnx --data samples.npz --labels classes.npy --max-drop 0.5 -o net_int8.onnx
""",
    "size": """
  edgebuild size build/app.elf --flash 256K --ram 64K
  edgebuild size build/app.elf --diff main/size.json --allow 1K
""",
    "init": """
  edgebuild init my_app --board mps2-an386
  edgebuild init my_app --board stm32f411 --build scons --model kws.tflite
""",
    "sbom": """
  edgebuild sbom build/kws.req.json --program build/app.elf -o app.spdx.json
""",
    "run": """
  edgebuild run build/kws.req.json
""",
    "cache": """
  edgebuild cache stats
  edgebuild cache explain build/a.req.json build/b.req.json
""",
    "cmake-dir": """
  cmake -B build -DEdgeBuild_DIR=$(edgebuild cmake-dir)
""",
    "cmake-module": """
  edgebuild cmake-module -o cmake
""",
}
