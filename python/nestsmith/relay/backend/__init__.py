"""How networks run: executors of expressions."""

from .executor import AotExecutor, Executor, GraphExecutor, Interpreter, Runtime, VMExecutor, create_executor

__all__ = ["AotExecutor", "Executor", "GraphExecutor", "Interpreter", "Runtime", "VMExecutor", "create_executor"]
