"""What the tests of the documentation stand on: reading its pages, and a stage on which its agents play."""
