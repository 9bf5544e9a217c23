/* engine/engine.h - the door of engine/: the model, from file to logits. Sub-rooms have their own doors:
 * engine/quant/quant.h (methods), engine/eval/eval.h (quality),
 * engine/train/train.h (making a model). */
#ifndef QDYNO_ENGINE_H
#define QDYNO_ENGINE_H

#include "kernels/kernels.h"

#include "engine/config.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "engine/model.h"
#include "engine/model_identity.h"
#include "engine/ledger.h"
#include "engine/operations.h"
#include "engine/sampler.h"
#include "engine/synth.h"
#include "engine/workload.h"
#include "engine/worker.h"

#endif
