/* advisor/advisor.h - the door of advisor/: what to conclude. Arms, experiments, verdicts, predictions,
 * outcomes. */
#ifndef QDYNO_ADVISOR_H
#define QDYNO_ADVISOR_H

#include "db/db.h"
#include "telemetry/telemetry.h"

#include "advisor/stats.h"
#include "advisor/arm.h"
#include "advisor/shapes.h"
#include "advisor/quality.h"
#include "advisor/gate.h"
#include "advisor/joint.h"
#include "advisor/experiment.h"
#include "advisor/claims.h"
#include "advisor/sidebyside.h"
#include "advisor/advise.h"
#include "advisor/rules.h"
#include "advisor/teach.h"
#include "advisor/apply.h"
#include "advisor/recipe_search.h"
#include "advisor/tune.h"
#include "advisor/governor.h"
#include "advisor/outcome.h"
#include "advisor/span.h"
#include "advisor/trace.h"
#include "advisor/trace_push.h"
#include "advisor/trace_run.h"
#include "advisor/requests.h"
#include "advisor/scrape.h"
#include "advisor/series.h"
#include "advisor/capsule.h"
#include "advisor/canary.h"
#include "advisor/conditions.h"
#include "advisor/results.h"
#include "advisor/history.h"
#include "advisor/compare.h"
#include "advisor/baseline.h"
#include "advisor/alert.h"
#include "advisor/alert_export.h"
#include "advisor/watch.h"

#endif
