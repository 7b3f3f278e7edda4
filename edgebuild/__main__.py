"""`python -m edgebuild`: the same as the command."""

from edgebuild.build.entry import main

raise SystemExit(main())
