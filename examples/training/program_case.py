"""Tests of programs as their users see them: exit status, standard output, standard error."""

import json
import os
import subprocess
import sys
import unittest

MODES = ["keep", "recompute", "offload-sync", "offload-lhs", "offload-pipelined", "offload-auto"]


class ProgramCase(unittest.TestCase):
    programs = ""  # their folder

    @classmethod
    def path_of(cls, program):
        return os.path.join(cls.programs, program)

    @classmethod
    def run_program(cls, program, *arguments, **variables):
        """Without what is set outside: tests say what they set."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EBB_")}
        environment.update(variables)
        return subprocess.run([cls.path_of(program), *arguments], capture_output=True, text=True, env=environment, check=False)

    def succeeds(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def fails(self, result, status, *texts):
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def json_of(self, result):
        return json.loads(self.succeeds(result).stdout)


def main():
    """usage: TEST.py DIRECTORY_OF_PROGRAMS CASE..."""
    ProgramCase.programs = sys.argv[1]
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
