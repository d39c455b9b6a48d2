package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/goccy/go-yaml"
)

// Object is a manifest, as far as it is run or checked.
type Object struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec Spec              `yaml:"spec"`
	Data map[string]string `yaml:"data"` // of a ConfigMap
}

// Spec is that of a Deployment, a Job or a Service.
type Spec struct {
	Replicas *int `yaml:"replicas"`
	Strategy struct {
		RollingUpdate struct {
			MaxSurge       int `yaml:"maxSurge"`
			MaxUnavailable int `yaml:"maxUnavailable"`
		} `yaml:"rollingUpdate"`
	} `yaml:"strategy"`
	BackoffLimit int            `yaml:"backoffLimit"`
	Selector     map[string]any `yaml:"selector"`
	Ports        []ServicePort  `yaml:"ports"`
	Template     struct {
		Metadata struct {
			Labels map[string]string `yaml:"labels"`
		} `yaml:"metadata"`
		Spec PodSpec `yaml:"spec"`
	} `yaml:"template"`
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name       string `yaml:"name"`
	Port       int    `yaml:"port"`
	TargetPort string `yaml:"targetPort"`
}

// PodSpec is what runs in a pod.
type PodSpec struct {
	Grace          *int        `yaml:"terminationGracePeriodSeconds"`
	InitContainers []Container `yaml:"initContainers"`
	Containers     []Container `yaml:"containers"`
	Volumes        []Volume    `yaml:"volumes"`
}

// Container is a process of a pod.
type Container struct {
	Name    string   `yaml:"name"`
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	Env     []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
		From  struct {
			Secret struct {
				Name string `yaml:"name"`
				Key  string `yaml:"key"`
			} `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	} `yaml:"env"`
	Ports []struct {
		Name string `yaml:"name"`
		Port int    `yaml:"containerPort"`
	} `yaml:"ports"`
	Startup   *Probe `yaml:"startupProbe"`
	Liveness  *Probe `yaml:"livenessProbe"`
	Readiness *Probe `yaml:"readinessProbe"`
	Lifecycle struct {
		PreStop *Handler `yaml:"preStop"`
	} `yaml:"lifecycle"`
	Mounts []struct {
		Name string `yaml:"name"`
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// Handler is what a probe or a hook does.
type Handler struct {
	HTTPGet *struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
	Exec *struct {
		Command []string `yaml:"command"`
	} `yaml:"exec"`
	Sleep *struct {
		Seconds int `yaml:"seconds"`
	} `yaml:"sleep"`
}

// Probe is a handler that is tried again and again.
type Probe struct {
	Handler          `yaml:",inline"`
	InitialDelay     int `yaml:"initialDelaySeconds"`
	Period           int `yaml:"periodSeconds"`
	Timeout          int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
	SuccessThreshold int `yaml:"successThreshold"`
}

// Volume is a folder of files.
type Volume struct {
	Name      string        `yaml:"name"`
	Secret    *VolumeSource `yaml:"secret"`
	ConfigMap *VolumeSource `yaml:"configMap"`
	Projected *struct {
		Sources []struct {
			Secret    *VolumeSource `yaml:"secret"`
			ConfigMap *VolumeSource `yaml:"configMap"`
		} `yaml:"sources"`
	} `yaml:"projected"`
}

// VolumeSource names a Secret or a ConfigMap, and where its values go.
type VolumeSource struct {
	Name       string `yaml:"name"`
	SecretName string `yaml:"secretName"`
	Items      []struct {
		Key  string `yaml:"key"`
		Path string `yaml:"path"`
	} `yaml:"items"`
}

// Parse reads the manifests of a file.
func Parse(file []byte) (objects []Object, err error) {
	d := yaml.NewDecoder(bytes.NewReader(file))
	for {
		var o Object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		if o.Kind != "" {
			objects = append(objects, o)
		}
	}
}

// Port is a port of the container by its name or number; 0 if it has none.
func (c *Container) Port(name string) int {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.Port
		}
	}
	port, _ := strconv.Atoi(name) // 0: no port
	return port
}
