"""Questions about states that scripts for TVM ask its C++ functions."""

from .. import _core

__all__ = ["SearchPolicyUtilsHasCacheReadStage", "SearchPolicyUtilsHasCacheWriteStage",
           "SearchPolicyUtilsHasCrossThreadReduction", "SearchPolicyUtilsHasRfactorStage", "SearchPolicyUtilsIsTiled"]

THREAD_X, REDUCTION = 6, 1  # annotation and kind of an iterator


def SearchPolicyUtilsIsTiled(stage):
    """Has a stage other loops than its operation has axes?"""
    return len(stage.iters) != stage.n_axes


def _has(mnemonic):
    def has(state, stage_id):
        """Was the stage, under the number that it had then, changed by such a step?"""
        for step in reversed(state.transform_steps):
            if step[0] == mnemonic and step[1] == stage_id:
                return True
            if step[0] in _core.STEP_INSERTS and stage_id > step[1]:
                stage_id -= 1
        return False

    return has


SearchPolicyUtilsHasCacheReadStage, SearchPolicyUtilsHasCacheWriteStage, SearchPolicyUtilsHasRfactorStage = map(_has, ("CHR", "CHW", "RF"))


def SearchPolicyUtilsHasCrossThreadReduction(state, stage_id):
    """Do threads share a reduction of the stage, or of a stage that is computed in it?"""
    at = [s for s in state.transform_steps if s[0] == "CA" and s[2] == stage_id]
    stages = [state.stages[stage_id], *(state.stages[s[1]] for s in at)]
    return any(it.annotation == THREAD_X and it.iter_kind == REDUCTION for s in stages for it in s.iters)
