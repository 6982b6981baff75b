//! Endpoints of an HTTP service, each declared once for its router and its description (OpenAPI).

use utoipa::openapi::path::{Operation, PathItem};
use utoipa_axum::router::OpenApiRouter;

/// Merges the endpoints of several modules. Each module's name is their tag in the description;
/// those of a module without a name have no tag.
#[must_use]
pub fn merge_modules<S: Clone + Send + Sync + 'static>(
    modules: impl IntoIterator<Item = (&'static str, OpenApiRouter<S>)>,
) -> OpenApiRouter<S> {
    let tagged = modules.into_iter().map(|(tag, mut endpoints)| {
        let paths = endpoints.get_openapi_mut().paths.paths.values_mut();
        for operation in paths.flat_map(operations) {
            let tags = [tag].into_iter().filter(|tag| !tag.is_empty());
            operation.tags = Some(tags.map(str::to_owned).collect());
        }
        endpoints
    });
    tagged.fold(OpenApiRouter::default(), OpenApiRouter::merge)
}

/// Returns the operations of a path.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.patch,
        &mut item.delete,
    ];
    all.into_iter().flatten()
}
