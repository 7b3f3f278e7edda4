int zephyr_begin; /* main is in the library app */
