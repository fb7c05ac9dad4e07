"""Load Profile and Save Profile: what was learned of a model, as a file or as text in a workflow."""

from __future__ import annotations

from typing import ClassVar

from comfy_api.latest import io, ui

from ..cache_core.learned import ModelProfile
from ..model_patches.profile_folder import profile_files, read_profile, safe_name, saved_profiles, write_whole
from .auto import ProfileType
from .base import CATEGORY

NO_FILE = "none: use the text"


class LoadProfile(io.ComfyNode):
    title: ClassVar[str] = "Load Profile"

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="StepCacheLoadProfile",
            display_name=cls.title,
            category=CATEGORY,
            description="Loads what was learned of a model: from a file in ComfyUI's user folder, or from text, which a "
            "workflow carries along.",
            search_aliases=["profile", "load", "cache", "step cache", "calibration"],
            inputs=[
                io.Combo.Input(
                    "file",
                    options=[NO_FILE, *profile_files()],
                    default=NO_FILE,
                    tooltip="Profiles in stepcache/saved and stepcache/profiles of the user folder.",
                ),
                io.String.Input(
                    "text",
                    default="",
                    multiline=True,
                    optional=True,
                    tooltip="A profile as Save Profile shows it. Used if no file is chosen.",
                ),
            ],
            outputs=[ProfileType.Output(display_name="profile", tooltip="For StepCache in mode profile.")],
        )

    @classmethod
    def validate_inputs(cls, file=None) -> bool | str:
        known = file is None or file == NO_FILE or file in profile_files()
        return known or f"There is no profile {file}. Put the file into {saved_profiles()}, or choose another."

    @classmethod
    def fingerprint_inputs(cls, file=NO_FILE, text="") -> str:
        path = profile_files().get(file)
        return f"{file} {path.stat().st_mtime_ns}" if path else text

    @classmethod
    def execute(cls, file, text="") -> io.NodeOutput:
        path = profile_files().get(file)
        if path is None and not text.strip():
            raise ValueError("Choose a profile file, or paste a profile into the text.")
        try:
            return io.NodeOutput(read_profile(path) if path else ModelProfile.from_json(text))
        except (OSError, ValueError) as problem:
            raise ValueError(f"{file if path else 'The text'} is no profile: {problem}. Save it again.") from problem


class SaveProfile(io.ComfyNode):
    title: ClassVar[str] = "Save Profile"

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="StepCacheSaveProfile",
            display_name=cls.title,
            category=CATEGORY,
            description="Saves what was learned of a model under a name, in ComfyUI's user folder, and gives it as text to "
            "share.",
            search_aliases=["profile", "save", "cache", "step cache", "calibration"],
            is_output_node=True,
            inputs=[
                ProfileType.Input("profile", tooltip="From Calibrate or Load Profile."),
                io.String.Input("name", default="my model", tooltip="Of the file. One of that name is replaced."),
            ],
            outputs=[io.String.Output(display_name="text", tooltip="The profile, for the text of Load Profile.")],
        )

    @classmethod
    def execute(cls, profile, name) -> io.NodeOutput:
        if not isinstance(profile, ModelProfile):
            raise ValueError("No profile is connected. Connect Calibrate or Load Profile.")
        file = saved_profiles() / f"{safe_name(name)}.json"
        write_whole(file, profile.as_json())
        return io.NodeOutput(profile.as_json(), ui=ui.PreviewText(f"saved as {file}"))
