"""raybench: saturation tests of LLM serving engines whose every number is valid or void."""

__version__ = "0.1.0"
