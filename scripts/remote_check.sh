#!/usr/bin/env bash
# Run scripts/check_chapters.py on a copy of this checkout, here or on another machine.
#
#   scripts/remote_check.sh WORKDIR [PREFIX …]                     on this machine
#   REMOTE=user@host scripts/remote_check.sh WORKDIR [PREFIX …]    on that one, over ssh and rsync
#
# WORKDIR is a scratch folder where the checker runs: new, empty, or made by an earlier run. On another machine, a path
# that is not absolute starts in the home folder there; quote '~/…' to mean that home. A link in it where a folder of
# these scripts belongs is refused. PREFIX chooses chapters as it does for check_chapters.py. What the checker prints
# appears line by line on stdout; what this script has to say is on stderr. The report ends up in
# build/remote/HOST-TIME/: output.txt, junit.xml, host.txt, exit-code.
#
# Exit code: the checker's own (0 equal, 1 something differs, 2 it cannot run); 2 also when this script is used wrongly
# or a program is missing; 130 after Ctrl-C, 141 when nobody reads stdout any more (`| head -1`), 255 when the connection
# is lost: then the run there ends too.
#
# Variables, all optional:
#   REMOTE             user@host, or a name from ~/.ssh/config
#   REMOTE_SSH         the ssh command, read as the shell reads it: 'ssh -p 2222 -i key'
#   REMOTE_PYTHON      a Python on that machine whose environment fits; without it, make builds WORKDIR/book/.venv
#   PYTHON, PIP_…      what make and pip use to build it
#   JOBS               notebooks at once
#   AGENTRL_MODEL_DIR  the folder on that machine with the real model that lab cells need
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=remote/here.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/remote/here.sh"
remote_main check "$@"
