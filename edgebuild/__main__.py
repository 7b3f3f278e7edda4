"""`python -m edgebuild`: the same as the command."""

from .build.entry import main

raise SystemExit(main())
