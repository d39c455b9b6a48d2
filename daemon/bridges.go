package daemon

import (
	"fmt"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/bridge"
	"github.com/tasker-go/tasker/internal/bridge/amqpevents"
	"github.com/tasker-go/tasker/internal/bridge/amqpqueue"
	"github.com/tasker-go/tasker/internal/bridge/redisqueue"
	"github.com/tasker-go/tasker/internal/signal/amqp"
)

// wireBridges makes the bridges from queues of other programs, and to their exchanges.
func (d *Orchestrator) wireBridges(c *config.Loaded, self string) error {
	o := c.Orchestration.Bridge
	if o.RedisQueue.Enabled {
		b, err := redisqueue.New(d.redisBridge(c.Orchestration))
		if err != nil {
			return fmt.Errorf("prepare orchestration.bridge.redis_queue: %w", err)
		}
		d.services, d.bridges = append(d.services, b), append(d.bridges, b.Loop)
	}
	if o.RabbitMQQueue.Enabled {
		b, err := amqpqueue.New(d.rabbitMQBridge(c))
		if err != nil {
			return fmt.Errorf("prepare orchestration.bridge.rabbitmq_queue: %w", err)
		}
		d.services, d.bridges = append(d.services, b), append(d.bridges, b.Loop)
	}
	if o.RabbitMQEvents.Enabled {
		for _, namespace := range o.RabbitMQEvents.Namespaces {
			b, err := amqpevents.New(d.eventsBridge(c, self, namespace))
			if err != nil {
				return fmt.Errorf("prepare orchestration.bridge.rabbitmq_events: %w", err)
			}
			d.services, d.bridges = append(d.services, b), append(d.bridges, b.Loop)
		}
	}
	return nil
}

func (d *Orchestrator) redisBridge(o config.Orchestration) redisqueue.Config {
	q := o.Bridge.RedisQueue
	return redisqueue.Config{URL: q.URL.Reveal(), Prefix: q.Prefix, BatchSize: q.BatchSize, Interval: q.Interval, ReclaimAfter: q.ReclaimAfter,
		Timeout: q.Timeout, Door: d.door(q.Namespace), Logger: d.log.Named("bridge")}
}

func (d *Orchestrator) rabbitMQBridge(c *config.Loaded) amqpqueue.Config {
	q := c.Orchestration.Bridge.RabbitMQQueue
	cfg := amqpqueue.Config{Broker: amqp.Configure(c.Common), Keys: q.Keys, BatchSize: q.BatchSize, Door: d.door(q.Namespace), Tasks: d.store,
		Publisher: d.publisher, Logger: d.log.Named("bridge")}
	cfg.Broker.ConnectionName, cfg.Broker.Metrics = "tasker-bridge", d.metrics
	return cfg
}

func (d *Orchestrator) eventsBridge(c *config.Loaded, self, namespace string) amqpevents.Config {
	e := c.Orchestration.Bridge.RabbitMQEvents
	cfg := amqpevents.Config{Broker: amqp.Configure(c.Common), Exchange: e.Exchange, Type: e.ExchangeType, Namespace: namespace, Patterns: e.Patterns,
		FromNow: e.From == "now", MaxConsumers: c.Orchestration.Events.MaxConsumers, BatchSize: e.BatchSize, Lease: e.Lease, Interval: e.Interval,
		Mandatory: e.Mandatory, Results: e.Results, Holder: self, Log: d.store, NewEvents: d.engine.NewEvents, Metrics: d.metrics, Logger: d.log.Named("bridge")}
	if cfg.Type == "existing" {
		cfg.Type = ""
	}
	cfg.Broker.ConnectionName = "tasker-events"
	return cfg
}

// door is where a bridge creates tasks, of types of a namespace or of all.
func (d *Orchestrator) door(namespace string) bridge.Door {
	return bridge.Door{Engine: d.engine, Namespace: namespace, Metrics: d.metrics, Admitted: func(namespace string) (ok bool) {
		if namespace == "" {
			_, ok = d.admission.AdmitRequest()
		} else {
			_, ok = d.admission.AdmitTask(namespace)
		}
		return ok
	}}
}
