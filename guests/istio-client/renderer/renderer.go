// Package renderer calls Istio's own renderer.
package renderer

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"

	"istio.io/istio/operator/pkg/component"
	"istio.io/istio/operator/pkg/manifest"
	"istio.io/istio/operator/pkg/render"
	"istio.io/istio/pkg/kube"
)

const module = "istio.io/istio"

// The release of Istio. The build sets it, from the file `release` of the version.
var release string

// IstioVersion is a version of Istio.
type IstioVersion struct {
	Release string `json:"release"`
	Module  string `json:"module"`
}

// Manifest is an object to apply.
type Manifest struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Content   string `json:"content"`
}

// Component is what one component of Istio consists of.
type Component struct {
	Name      string     `json:"name"`
	Manifests []Manifest `json:"manifests"`
}

// Rendered is the result of rendering.
type Rendered struct {
	Components []Component `json:"components"`
	Merged     string      `json:"merged"`
	Warnings   []string    `json:"warnings"`
}

// Version returns the version of Istio that is linked.
func Version() IstioVersion {
	version := IstioVersion{Release: release}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range build.Deps {
			if dependency.Path == module {
				version.Module = dependency.Version
			}
		}
	}
	return version
}

// Render renders an IstioOperator. The error has upstream's text; a panic of upstream's is an
// error, too.
func Render(spec string, cluster *Cluster) (rendered Rendered, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	var client kube.Client
	if cluster != nil {
		client, err = newClient(cluster)
		if err != nil {
			return Rendered{}, err
		}
	}
	var warnings warnings
	done := setInput(spec)
	sets, merged, err := render.GenerateManifest([]string{"-"}, nil, false, client, &warnings)
	done()
	if err != nil {
		return Rendered{}, err
	}
	values, err := json.Marshal(merged)
	if err != nil {
		return Rendered{}, fmt.Errorf("print merged values: %v", err)
	}
	return Rendered{
		Components: components(sets),
		Merged:     string(values),
		Warnings:   warnings.lines,
	}, nil
}

// Puts the components in upstream's order: it hands them over in the order of a map.
func components(sets []manifest.ManifestSet) []Component {
	slices.SortFunc(sets, func(a, b manifest.ManifestSet) int {
		return place(a.Component) - place(b.Component)
	})
	components := make([]Component, 0, len(sets))
	for _, set := range sets {
		manifests := make([]Manifest, 0, len(set.Manifests))
		for _, object := range set.Manifests {
			manifests = append(manifests, Manifest{
				Kind:      object.GetKind(),
				Namespace: object.GetNamespace(),
				Name:      object.GetName(),
				Content:   object.Content,
			})
		}
		components = append(components, Component{string(set.Component), manifests})
	}
	return components
}

func place(name component.Name) int {
	return slices.IndexFunc(component.AllComponents, func(component component.Component) bool {
		return component.UserFacingName == name
	})
}
