// Package export_istio_client_renderer has the functions that the generated exports call.
// They name it.
package export_istio_client_renderer

import (
	"mortise/istio-client/abi/types"
	wit "mortise/istio-client/bindings/istio_client_renderer"
	"mortise/istio-client/renderer"
)

// Version returns the version of Istio.
func Version() wit.IstioVersion {
	version := renderer.Version()
	return wit.IstioVersion{Release: version.Release, Module: version.Module}
}

// Render renders an IstioOperator.
func Render(spec string, cluster types.Option[wit.Cluster]) types.Result[wit.Rendered, string] {
	rendered, err := renderer.Render(spec, facts(cluster))
	if err != nil {
		return types.Err[wit.Rendered](err.Error())
	}
	components := make([]wit.Component, 0, len(rendered.Components))
	for _, component := range rendered.Components {
		manifests := make([]wit.Manifest, 0, len(component.Manifests))
		for _, manifest := range component.Manifests {
			manifests = append(manifests, wit.Manifest(manifest))
		}
		components = append(components, wit.Component{Name: component.Name, Manifests: manifests})
	}
	return types.Ok[wit.Rendered, string](wit.Rendered{
		Components: components,
		Merged:     rendered.Merged,
		Warnings:   rendered.Warnings,
	})
}

func facts(given types.Option[wit.Cluster]) *renderer.Cluster {
	cluster, present := given.Get()
	if !present {
		return nil
	}
	facts := renderer.Cluster{
		GitVersion: cluster.GitVersion,
		Major:      cluster.Major,
		Minor:      cluster.Minor,
	}
	if config, present := cluster.CiliumConfig.Get(); present {
		facts.CiliumConfig = make(map[string]string, len(config))
		for _, entry := range config {
			facts.CiliumConfig[entry.F0] = entry.F1
		}
	}
	if configuration, present := cluster.FelixConfiguration.Get(); present {
		facts.FelixConfiguration = &configuration
	}
	return &facts
}
