package store

import (
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// registration is templates that become the current ones, column by column.
type registration struct {
	environment                 string
	templates                   []*workflow.Template
	namespaces, names, versions []string
	hashes                      [][]byte
	documents, steps            []string
}

func newRegistration(environment string, templates []*workflow.Template) (*registration, error) {
	n := len(templates)
	r := &registration{
		environment: environment, templates: templates, namespaces: make([]string, n), names: make([]string, n), versions: make([]string, n),
		hashes: make([][]byte, n), documents: make([]string, n), steps: make([]string, n),
	}
	for i, t := range templates {
		plan, err := workflow.Compile(t)
		if err != nil {
			return nil, fmt.Errorf("compile template %s/%s:%s: %w", t.Namespace, t.Name, t.Version, err)
		}
		document, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("encode template %s/%s:%s: %w", t.Namespace, t.Name, t.Version, err)
		}
		order := make([]string, len(plan.Steps))
		for no := range plan.Steps {
			order[no] = plan.Steps[no].Name
		}
		list, err := json.Marshal(order)
		if err != nil {
			return nil, fmt.Errorf("encode the steps of template %s/%s:%s: %w", t.Namespace, t.Name, t.Version, err)
		}
		hash := t.ContentHash()
		r.namespaces[i], r.names[i], r.versions[i] = t.Namespace, t.Name, t.Version
		r.hashes[i], r.documents[i], r.steps[i] = hash[:], string(document), string(list)
	}
	return r, nil
}

// take has two who register at the same time take turns.
func (*registration) take(b *pgx.Batch) {
	b.Queue(`select pg_advisory_xact_lock(hashtext('tasker.register_templates'))`)
}

// queue adds the statements that make the templates current.
func (r *registration) queue(b *pgx.Batch) {
	queueZones(b, r.templates)
	b.Queue(`insert into tasker.namespaces (name) select distinct unnest($1::text[]) on conflict do nothing`, r.namespaces)
	b.Queue(`
		update tasker.plans p set current = false
		from unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) n(namespace, name, version, hash)
		join tasker.namespaces s on s.name = n.namespace
		where p.namespace_id = s.namespace_id and p.name = n.name and p.version = n.version and p.current
		  and (p.content_hash <> n.hash or p.environment <> $5)`,
		r.namespaces, r.names, r.versions, r.hashes, r.environment)
	b.Queue(`
		insert into tasker.plans (namespace_id, name, version, environment, content_hash, template, steps, current)
		select s.namespace_id, n.name, n.version, $7, n.hash, n.template::jsonb,
		       array(select jsonb_array_elements_text(n.steps::jsonb)), true
		from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[])
		     n(namespace, name, version, hash, template, steps)
		join tasker.namespaces s on s.name = n.namespace
		on conflict (namespace_id, name, version, environment, content_hash) do update set current = true
		where not plans.current`,
		r.namespaces, r.names, r.versions, r.hashes, r.documents, r.steps, r.environment)
}
