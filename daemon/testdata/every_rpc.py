"""Calls every rpc of tasker.v1 with stubs made from its protos.

Arguments: the address of an orchestrator, that of a worker, and a task with a dead letter.
"""

import importlib
import sys

import grpc
from google.protobuf import struct_pb2
from tasker.v1 import (
    analytics_pb2, common_pb2, config_pb2, dlq_pb2, health_pb2, steps_pb2, tasks_pb2, templates_pb2, worker_pb2,
)

orchestrator, worker, failed = sys.argv[1:]
called = set()


class Service:
    """The stub of a service, of which each call is noted."""

    def __init__(self, channel, file, name):
        module = importlib.import_module(f"tasker.v1.{file}_pb2_grpc")
        self.name, self.stub = name, getattr(module, name + "Stub")(channel)

    def __getattr__(self, rpc):
        def call(request):
            called.add(f"{self.name}.{rpc}")
            return getattr(self.stub, rpc)(request, timeout=30)

        return call


def check(condition, what):
    if not condition:
        sys.exit(f"wrong: {what}")


def code_of(call, request):
    try:
        call(request)
    except grpc.RpcError as e:
        return e.code()
    return grpc.StatusCode.OK


def struct(**values):
    s = struct_pb2.Struct()
    s.update(values)
    return s


def tasks_and_steps(channel):
    tasks, steps = Service(channel, "tasks", "TaskService"), Service(channel, "steps", "StepService")
    created = tasks.CreateTask(tasks_pb2.CreateTaskRequest(
        name="good", namespace="none", version="1.0.0", context=struct(n=41.0), initiator="python", priority=5, tags=["a"])).task
    check(created.initiator == "python" and created.priority == 5 and list(created.tags) == ["a"], created)
    updates = list(tasks.StreamTaskStatus(tasks_pb2.StreamTaskStatusRequest(task_uuid=created.task_uuid, include_steps=True)))
    check(updates[-1].update_type == tasks_pb2.TaskStatusUpdate.UPDATE_TYPE_TASK_COMPLETE, updates)
    shown = tasks.GetTask(tasks_pb2.GetTaskRequest(task_uuid=created.task_uuid, include_steps=True, include_context=True))
    check(shown.task.state == common_pb2.TASK_STATE_COMPLETE and len(shown.steps) == 2, shown)
    check(shown.task.HasField("completed_at") and shown.context.outputs["first"]["n"] == 7, shown)
    listed = tasks.ListTasks(tasks_pb2.ListTasksRequest(namespace="none", states=[common_pb2.TASK_STATE_COMPLETE]))
    check([t.task_uuid for t in listed.tasks] == [created.task_uuid] and listed.pagination.total == 1, listed)
    check(tasks.GetTaskContext(tasks_pb2.GetTaskContextRequest(task_uuid=created.task_uuid)).context.inputs["n"] == 41, "context")
    summary = tasks.GetTaskSummary(tasks_pb2.GetTaskSummaryRequest(task_uuid=created.task_uuid))
    check([s.name for s in summary.template.steps] == ["first", "second"], summary)
    logs = tasks.GetTaskLogs(tasks_pb2.GetTaskLogsRequest(task_uuid=created.task_uuid, step="first", level="info", limit=10))
    check(list(logs.lines) == [] and logs.next == "", logs)
    cancelled = tasks.CancelTask(tasks_pb2.CancelTaskRequest(task_uuid=created.task_uuid, reason="too late"))
    check(not cancelled.success and "Cannot cancel" in cancelled.message, cancelled)
    check(code_of(tasks.GetTask, tasks_pb2.GetTaskRequest(task_uuid="x")) == grpc.StatusCode.INVALID_ARGUMENT, "no UUID")

    all_steps = steps.ListSteps(steps_pb2.ListStepsRequest(task_uuid=created.task_uuid))
    check(all_steps.pagination.total == 2 and all_steps.steps[0].state == common_pb2.STEP_STATE_COMPLETE, all_steps)
    at = {"task_uuid": created.task_uuid, "step_uuid": all_steps.steps[0].step_uuid}
    check(steps.GetStep(steps_pb2.GetStepRequest(**at)).step.results["result"]["n"] == 7, "result")
    check(steps.GetStepAudit(steps_pb2.GetStepAuditRequest(**at)).audit_records[0].success, "audit")
    broken = steps.ListSteps(steps_pb2.ListStepsRequest(task_uuid=failed)).steps[0]
    resolved = steps.ResolveStep(steps_pb2.ResolveStepRequest(
        task_uuid=failed, step_uuid=broken.step_uuid, performed_by="ana", reason="by hand", result=struct(total=12),
        action_type=steps_pb2.STEP_MANUAL_ACTION_TYPE_COMPLETE_MANUALLY))
    check(resolved.step.state == common_pb2.STEP_STATE_COMPLETE, resolved)


def dead_letters(channel):
    dlq = Service(channel, "dlq", "DlqService")
    entry = dlq.GetEntryByTask(dlq_pb2.GetDlqEntryByTaskRequest(task_uuid=failed)).entry
    check(entry.task_uuid == failed and entry.HasField("dlq_timestamp"), entry)
    pending = dlq_pb2.ListDlqEntriesRequest(resolution_status=dlq_pb2.DLQ_RESOLUTION_STATUS_PENDING)
    check(len(dlq.ListEntries(pending).entries) == 1, "one pending entry")
    check(len(dlq.GetInvestigationQueue(dlq_pb2.GetDlqInvestigationQueueRequest(limit=5)).entries) == 1, "queue")
    dlq.GetStalenessMonitoring(dlq_pb2.GetStalenessMonitoringRequest())
    updated = dlq.UpdateInvestigation(dlq_pb2.UpdateDlqInvestigationRequest(
        dlq_entry_uuid=entry.dlq_entry_uuid, resolved_by="ana", resolution_status=dlq_pb2.DLQ_RESOLUTION_STATUS_MANUALLY_RESOLVED,
        metadata=struct(by="phone")))
    check(updated.success and len(dlq.ListEntries(pending).entries) == 0, updated)
    check(dlq.GetStats(dlq_pb2.GetDlqStatsRequest()).stats[0].manually_resolved == 1, "stats")


def reading(channel):
    templates = Service(channel, "templates", "TemplateService")
    check(templates.ListTemplates(templates_pb2.ListTemplatesRequest(namespace="none")).total_count == 3, "templates")
    one = templates.GetTemplate(templates_pb2.GetTemplateRequest(namespace="none", name="good", version="1.0.0")).template
    check(one.description == "Two steps" and len(one.steps) == 2, one)
    analytics = Service(channel, "analytics", "AnalyticsService")
    check(analytics.GetPerformanceMetrics(analytics_pb2.GetPerformanceMetricsRequest(hours=1)).total_tasks > 0, "performance")
    analytics.GetBottleneckAnalysis(analytics_pb2.GetBottleneckAnalysisRequest(limit=3, min_executions=1))
    shown = Service(channel, "config", "ConfigService").GetConfig(config_pb2.GetConfigRequest())
    check(shown.messaging.backend != "" and shown.metadata.HasField("timestamp"), shown)
    health = Service(channel, "health", "HealthService")
    check(health.CheckHealth(health_pb2.HealthRequest()).status == "healthy", "health")
    check(health.CheckLiveness(health_pb2.LivenessRequest()).status != "", "liveness")
    check(health.CheckReadiness(health_pb2.ReadinessRequest()).checks.web_database.status == "healthy", "readiness")
    check(health.CheckDetailedHealth(health_pb2.DetailedHealthRequest()).info.version != "", "detailed health")


def of_a_worker(channel):
    check(Service(channel, "worker", "WorkerConfigService").GetConfig(worker_pb2.WorkerGetConfigRequest()).worker_id != "", "config")
    health = Service(channel, "worker", "WorkerHealthService")
    check(health.CheckHealth(worker_pb2.WorkerHealthRequest()).worker_id != "", "health")
    check(health.CheckLiveness(worker_pb2.WorkerLivenessRequest()).HasField("timestamp"), "liveness")
    check(health.CheckReadiness(worker_pb2.WorkerReadinessRequest()).checks.database.status == "healthy", "readiness")
    check(list(health.CheckDetailedHealth(worker_pb2.WorkerDetailedHealthRequest()).system_info.supported_namespaces) == ["none"], "detailed")
    templates = Service(channel, "worker", "WorkerTemplateService")
    check(templates.ListTemplates(worker_pb2.WorkerListTemplatesRequest(include_cache_stats=True)).template_count == 3, "templates")
    one = templates.GetTemplate(worker_pb2.WorkerGetTemplateRequest(namespace="none", name="good", version="1.0.0"))
    check(one.handler_metadata.handler_name == "good" and len(one.template.steps) == 2, one)


with grpc.insecure_channel(orchestrator) as channel:
    dead_letters(channel)
    tasks_and_steps(channel)
    reading(channel)
with grpc.insecure_channel(worker) as channel:
    of_a_worker(channel)

declared = {
    f"{service.name}.{method.name}"
    for file in (analytics_pb2, common_pb2, config_pb2, dlq_pb2, health_pb2, steps_pb2, tasks_pb2, templates_pb2, worker_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
check(called == declared, declared - called)
print(len({name.split(".")[0] for name in called}), "services,", len(called), "rpcs")
