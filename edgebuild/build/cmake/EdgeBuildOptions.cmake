# Written by `python -m edgebuild.build.cmake --options`. Options are sorted, as in the request.
set_property(GLOBAL PROPERTY EDGEBUILD_MODEL_OPTIONS ARENA BACKEND BIND CALIBRATION CLUSTER CMSIS_NN DEVICE FLASH HSE LIMIT MAP MAX_MAC_OVERHEAD OBJECTIVE OPTIMIZE OUTPUTS PORTABLE QOS RAM SCALES SHAPE STREAM_INPUT TILE TIME_LIMIT WEIGHTS)
set_property(GLOBAL PROPERTY EDGEBUILD_MODEL_SUFFIXES .c .h _arena.h _weights.S _weights.bin _weights.c _memory.ld _check.ld _clock.h _report.json)
set_property(GLOBAL PROPERTY EDGEBUILD_DRIVER_OPTIONS DEFINES FORCE_INCLUDE INCLUDE_DIRS LAYOUT PROFILE REGISTER_WIDTH)
set_property(GLOBAL PROPERTY EDGEBUILD_DRIVER_SUFFIXES .c _hal.h _regs.h _systemc.h .svd .rdl _report.json _report.txt)
set_property(GLOBAL PROPERTY EDGEBUILD_CLOCK_OPTIONS HSE SOURCE SYSCLK USB)
set_property(GLOBAL PROPERTY EDGEBUILD_CLOCK_OUTPUTS clock_config.c clock_config.h)
# OPTION=separator of an option that has a list of values.
set_property(GLOBAL PROPERTY EDGEBUILD_LIST_OPTIONS "BIND= " "LIMIT=," "OUTPUTS= " "QOS=," "SHAPE= " "DEFINES=," "FORCE_INCLUDE=," "INCLUDE_DIRS=," "SYSCLK=,")
# OPTION=prefix of a value that goes on with the path of a file.
set_property(GLOBAL PROPERTY EDGEBUILD_FILE_OPTIONS "CALIBRATION=|CLUSTER=|CMSIS_NN=|FORCE_INCLUDE=|INCLUDE_DIRS=|LAYOUT=fixed:|LAYOUT=extend:|PROFILE=")
