"""Seeded attacks on the built program, from outside: one file per family of cases.

    python3 fuzz/adversary.py [--program PATH] [--seed S] [--only REGEX] [--jobs J]

Every command that a case runs is held to the same rules (`room.py`): it ends within a deadline and within memory,
by an exit code
that is documented and expected,
never by a signal or a panic; an error says what is wrong and has a remedy; nothing half-written
stays. A case adds what is special about it: which file is named, what must not have changed,
which bytes must be the same.

    datasets     dataset folders that are cut, altered or contradict themselves
    stamps       contents that changed behind the stamp of a validated folder
    commands     bad command lines and settings, absurd sizes
    imports      malformed input of every format
    own_data     `import arrays` with files that are wrong or do not belong together
    outputs      output paths that are no plain new files; full disks
    checkpoints  damaged checkpoints and models; runs resumed in ways they should not be
    kills        signals at seeded moments
    parity       the same losses however the work is spread
"""
