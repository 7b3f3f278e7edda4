"""`python -m edgebuild`: the same as the command."""

from edgebuild.entry import main

raise SystemExit(main())
