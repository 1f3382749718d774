//! Modules that change on disk while the host runs. In real time, since file events come from the
//! operating system.

use std::os::unix::fs::symlink;

use mortise_host::wasm::Digest;
use mortise_tests::rebuilt;

use super::{
    swaps::{makes, played, tried_and},
    *,
};

fn module() -> Vec<u8> {
    fs::read(guest(PUPPET).unwrap()).unwrap()
}

impl Place {
    /// Replaces a module atomically: writes the file under another name and renames it.
    fn replace(&self, name: &str, bytes: &[u8]) {
        let folder = self.modules.path();
        fs::write(folder.join("next"), bytes).unwrap();
        fs::rename(folder.join("next"), folder.join(name)).unwrap();
    }

    /// Waits until this module is active, with the conditions Loaded and Synced true.
    async fn until_at_work(&self, what: &str, module: &[u8]) {
        let digest = Digest::of(module).to_string();
        let is_at_work = |processor: &Processor| {
            let module = processor.status.as_ref().and_then(|status| status.module.as_ref());
            module.is_some_and(|module| module.digest == digest)
                && condition(processor, "Loaded").is_some_and(|of| of.status == "True")
                && condition(processor, "Synced").is_some_and(|of| of.status == "True")
        };
        self.until("rules", what, is_at_work).await;
    }

    /// Returns the digests of the modules on which an object ran, in order.
    fn modules_of(&self, name: &str) -> Vec<Digest> {
        let reports = self.reports.borrow();
        let own = reports.iter().filter(|report| report.key.name() == name);
        own.map(|report| report.version.as_ref().unwrap().digest).collect()
    }
}

#[tokio::test]
async fn a_module_that_is_replaced_takes_the_place_of_the_former() {
    let place = Place::with_first(&[played("a")]).await;
    let builds = [module(), rebuilt(&module(), "2"), rebuilt(&module(), "3")];
    place.until_at_work("the first", &builds[0]).await;
    place.replace("puppet.wasm", &builds[1]);
    place.until_at_work("a file was renamed", &builds[1]).await;
    fs::write(place.modules.path().join("puppet.wasm"), &builds[2]).unwrap();
    place.until_at_work("it was written in place", &builds[2]).await;
    // The same bytes in another file are not another module.
    place.replace("puppet.wasm", &builds[2]);
    place.replace("puppet.wasm", &builds[1]);
    place.until_at_work("back", &builds[1]).await;
    let ran = [0, 1, 2, 1].map(|build| Digest::of(&builds[build]));
    let mut reports = place.reports.subscribe();
    let all = reports.wait_for(|reports| reports.len() >= ran.len());
    timeout(TIMEOUT, all).await.expect("a run on each build").unwrap();
    assert_eq!(place.modules_of("a"), ran);
}

#[tokio::test]
async fn a_module_that_is_not_whole_is_refused_and_taken_when_it_is() {
    let place = Place::with_first(&[played("a")]).await;
    let next = rebuilt(&module(), "2");
    let path = place.modules.path().join("puppet.wasm");
    fs::write(&path, &next[..next.len() / 2]).unwrap();
    place.refused("rules", "ModuleInvalid").await;
    place.change(CONFIG_MAP, "a", json!({"data": {"sequence": "1"}})).await;
    fs::write(&path, &next).unwrap();
    place.until_at_work("it is whole", &next).await;
    fs::remove_file(&path).unwrap();
    place.reason("rules", "Loaded", "ModuleNotFound").await;
    place.replace("puppet.wasm", &next);
    place.until_at_work("it is there again", &next).await;
    let digests = place.modules_of("a");
    assert!(digests.is_sorted_by_key(|digest| *digest == Digest::of(&next)), "{digests:?}");
}

#[tokio::test]
async fn a_link_out_of_the_folder_leads_to_no_module() {
    let place = Place::with_first(&[played("a")]).await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("puppet.wasm"), rebuilt(&module(), "2")).unwrap();
    let folder = place.modules.path();
    symlink(outside.path().join("puppet.wasm"), folder.join("next")).unwrap();
    fs::rename(folder.join("next"), folder.join("puppet.wasm")).unwrap();
    let message = place.refused("rules", "ModuleUnreadable").await;
    assert!(
        message.starts_with("the module `puppet.wasm` leads out of the folder of modules: "),
        "{message}"
    );
    place.apply(&[played("b")]).await;
    place.until_object(CONFIG_MAP, "b-made", "the former runs", |found| found.is_some()).await;
    assert_eq!(place.modules_of("b")[0], Digest::of(&module()));
}

#[tokio::test]
async fn a_volume_whose_content_is_exchanged_by_a_link_brings_its_module() {
    let place = Place::new().await;
    let folder = place.modules.path();
    let volume = |name: &str, bytes: &[u8]| {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("rules.wasm"), bytes).unwrap();
        symlink(name, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    volume("..1", &module());
    symlink("..data/rules.wasm", folder.join("rules.wasm")).unwrap();
    place.apply(&[played("a")]).await;
    place.puppet("rules", &makes("1.0.0"), &json!({"module": {"path": "rules.wasm"}})).await;
    place.until_at_work("the first", &module()).await;
    let next = rebuilt(&module(), "2");
    volume("..2", &next);
    fs::remove_dir_all(folder.join("..1")).unwrap();
    place.until_at_work("the next", &next).await;
}

#[tokio::test]
async fn a_version_that_was_taken_back_is_tried_again_with_another_module() {
    let place = Place::with_first(&tried_and(&["b1", "b2", "b3", "b4"])).await;
    let bad = makes("2.0.0").script(json!({"panics": "no such rule"}));
    place.puppet("rules", &bad, &json!({})).await;
    place.refused("rules", "RolledBack").await;
    let next = rebuilt(&module(), "2");
    place.replace("puppet.wasm", &next);
    let is_next = |report: &Report| {
        let version = report.version.as_ref().unwrap();
        version.version == "2.0.0" && version.digest == Digest::of(&next)
    };
    place.report("the other module runs", is_next).await;
    place.until_at_work_are(&["1.0.0"]).await;
    place.refused("rules", "RolledBack").await;
}
