#!/usr/bin/env bash
# Run scripts/make_figures.py on a copy of this checkout, here or on another machine, and bring back what it draws.
#
#   scripts/remote_figures.sh WORKDIR [chNN …]                     on this machine
#   REMOTE=user@host scripts/remote_figures.sh WORKDIR [chNN …]    on that one, over ssh and rsync
#
# WORKDIR and the variables REMOTE, REMOTE_SSH, REMOTE_PYTHON, PYTHON and PIP_… are those of remote_check.sh; names choose
# figures as they do for make_figures.py. Every figure chosen is drawn anew and compared with the one sent. With
# RECORD=1, the scripts that know --record measure their data first, with the GPU where they use one.
# The files end up in build/remote/HOST-TIME/: output.txt, figures/*.svg, figures/data/ and chapters/recorded/ (only what
# was recorded there), host.txt, exit-code. Nothing in figures/ and chapters/ here is changed.
#
# Exit code: the program's own (0 all drawn, 1 one failed, 2 it cannot run); 2, 130, 141 and 255 as for remote_check.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=remote/here.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/remote/here.sh"
remote_main figures "$@"
